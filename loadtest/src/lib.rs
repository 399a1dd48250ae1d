//! A load generator and a model backend that drive any URL.
