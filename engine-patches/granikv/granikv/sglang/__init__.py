"""GraniKV inside SGLang, as a plugin: nothing of the engine is edited.

`plugin`     entry point of `sglang.srt.plugins`: checks the version, registers hooks
`settings`   what the environment says (GRANIKV_*)
`ways`       the line between paged and the rest, by the ways of a step
`core`       pools, tree, policies and control of one scheduler process; numpy only
`allocator`  the engine's slot allocator, on our memory
`prefix`     the engine's prefix cache, on our tree; `prefix_0523` with that version's contract
`attention`  the engine's attention backend: decode by step plans, extend as the engine does it
`steps`      what happens between two steps, on the engine's forward stream
`pace`       how long decode steps take, beside a relocation and else
`journal`    what each decode step ran on, for tests

The engine numbers slots from 1, because it writes padding to slot 0: engine slot = our slot + 1.
"""
