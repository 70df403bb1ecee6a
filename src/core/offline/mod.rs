//! What can be tried without a server: a plane in memory, recorded calls judged again, and policies compared on
//! them. This room is pure like the engine it drives: rows and policies come in, figures go out. It must not
//! know files, a database, gRPC or how figures are shown on a terminal.

pub mod backtest;
pub mod closings;
pub mod doubles;
pub mod event_store;
pub mod explain;
pub mod judge;
pub mod line;
pub mod suggest;
pub mod summary;
pub mod trace;
pub mod world;
