"""Where subscriptions lead to: a module for each kind of target, and a row of `table` for each module."""
