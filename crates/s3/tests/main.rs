//! Tests of the endpoint over real connections.
