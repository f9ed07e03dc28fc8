"""Judging answers beside the traffic: `shadow` (which, when, how many at a time), `asking` (calls beside a request),
`questions` (what is put to a model that judges, and programmatic checks), `labels` (the judge's own error), `ledger`
(what has been judged, and what follows). The arithmetic is `quality`'s. No caller ever waits for any of it.
"""
