"""A job while it runs: who has joined, who is late, what to stop and when to start again."""
