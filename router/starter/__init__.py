"""A first configuration: which models can be reached from here, which of them is small and which large, and the files
that say so; and other gateways' files, carried over. `places` asks, `choice` chooses, `litellm_file` and
`switchyard_file` read, and all of them end in a `draft`, which `files` writes. No request is served here, and no key is
kept: only the name of the variable that holds it.
"""
