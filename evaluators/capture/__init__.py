"""What a program asks of the machine, found out without a GPU.

A *capture* (`db.records.Capture`) is every kernel launch and torch operation of one `forward`, each kernel compiled for
a target; a *trace* (`evaluators.capture.traffic.LaunchTrace`) is what a launch loads, stores and computes, from
programs of the full-size grid that run on virtual addresses. Both run candidate code, so both are sandbox jobs;
`evaluators.capture.capture` asks for them from the judge's side.
"""
