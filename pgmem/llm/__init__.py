"""What a model says: prompts, the fence around data in them, the client, and the checks of its answers."""
