"""The default agent: a model's loop with tools and peers, served as A2A and as OpenAI chat completions."""
