"""The server's side: tasks that are replied to once, each scored by a rule. `app` is what is served."""
