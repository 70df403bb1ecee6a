//! Store below its gates, on a real PostgreSQL: races, budgets, restarts, leases and outages (each guarantee with a
//! canary where it depends on a check in SQL).

#[path = "../common/mod.rs"]
mod common;

mod analysts;
mod approval_notes;
mod audit;
mod bound;
mod budgets;
mod bulkheads;
mod calls;
mod canaries;
mod clocks;
mod connection_proxy;
mod connections;
mod contract;
mod corrections;
mod dictionary;
mod distributed;
mod durable;
mod encrypted;
mod exports;
mod faults;
mod forgetting;
mod killed;
mod learning;
mod leases;
mod outage;
mod people;
mod policies;
mod privacy;
mod quality;
mod races;
mod reports;
mod resealing;
mod restart;
mod retention;
mod rollouts;
mod routes;
mod schema;
mod sealed_people;
mod sealing;

mod summary;
mod tenants;
mod text_retention;
mod truncation;
mod views;
