"""What to try next.

An *island* (`islands.island.Island`) keeps a grid of elites, asks its operators for candidates and is told their
verdicts. An *operator* (`islands.operators`) makes a candidate of parents. Nothing here touches a device.
"""
