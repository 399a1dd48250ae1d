//! `tokentriage demo`: what it prints can be pasted into a shell, and shows what it says.
