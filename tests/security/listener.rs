//! A neighbour that connects to the listener of a process which it may not trace, or stands in its way.
