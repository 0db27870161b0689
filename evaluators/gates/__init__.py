"""Gates: one question each about a candidate, answered with a `GateResult` whose reason an operator can act on."""
