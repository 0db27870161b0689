"""Language models: asking them, and reading what they answer.

A *request* (`islands.llm.exchange`) goes to an `LlmClient`, which answers in time with a *completion* or a *failure*,
and never raises for what a provider does. A *model* (`islands.llm.models`) is `provider/name`; litellm speaks to all of
them, and `islands.llm.provider` alone speaks to litellm. *Keys* (`islands.llm.keys`) are taken out of the environment
and shown to providers only.
"""
