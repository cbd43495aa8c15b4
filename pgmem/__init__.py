"""The memory of LLM agents, kept in your own Postgres."""
