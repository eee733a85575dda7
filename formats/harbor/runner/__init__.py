"""How a Harbor task folder is run in containers: what the generated packages of every framework share.

A framework brings its own `Machine`; everything else follows Harbor 0.25 and is the same wherever a task runs.
"""
