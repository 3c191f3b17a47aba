"""What is seen after each round: facts, conditions, history, alerts, and streams of them."""
