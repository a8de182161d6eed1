"""The call protocol: requests, responses and aborts as events on a bus."""
