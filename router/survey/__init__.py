"""What machines say of themselves, and whether that is what a plan takes them for. Parsing and judging are pure
(`parse`, `wiring`, `findings`); `ask` runs one script on each machine, `probe` asks engines over HTTP. Nothing here
changes a machine.
"""
