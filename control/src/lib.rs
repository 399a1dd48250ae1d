//! What changes rarely: configuration, keys, the database, the management listener.
