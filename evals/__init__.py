"""Questions about large outputs, to measure how well a model answers them with forebay's tools alone."""
