"""A *whole model* is a module that somebody brings: `torch.compile`'s version of it is taken apart, the parts that
matter are searched one after the other, winners go back in their places, and the file is judged end to end.

`run.run_model` is the door. `improve` holds the order of it all, over three functions: take apart, search, judge.
`budget` says how much each part may spend, `choice` which winners go together, `delivery` what to try after a refusal.
Language models are another matter: they are in `evolve.language`.
"""
