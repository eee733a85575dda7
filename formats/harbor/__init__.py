"""Harbor 0.25.0: task folders with task.toml, instruction.md, environment/, tests/ and solution/.

tasks/<id>/task.toml            what the framework needs to know; every key has a default
          /instruction.md       what the agent is asked
          /environment/         the image's build context, or files for a prebuilt image
          /tests/test.sh        leaves the reward in /logs/verifier
          /solution/solve.sh    the reference, played by the oracle agent
registry.json, dataset.toml     lists of the tasks, for the two registries
"""
