"""The server's side: Harbor task folders, each played in a container. `app` is what is served."""
