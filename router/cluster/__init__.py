"""CORE: a cluster planned: what fits on which nodes, how fast it would be, and how nodes part into groups.

Everything here is values and arithmetic on them, but for `reader` and `scenario_files`, which alone read and write
files. What a plan becomes on the nodes (units, manifests, inventories) belongs elsewhere, and so does live traffic.
"""
