//! Blocked log output: calls are answered all the same, and lost lines are counted.

use std::{
    io::Read as _,
    sync::{Arc, Mutex},
};

use crate::{
    common::{
        until,
        wire::{call, evaluate, question, record, success},
    },
    server::{Home, Server, path},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_holds_up_no_call_and_what_was_lost_is_told() {
    let home = Home::with_cluster().await;
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let data_dir = home.data_dir();
    let server = Server::start_with_pipe(&["--data-dir", path(&data_dir), "--log", "trace"], writer);
    let mut client = server.client().await;
    // Each pair logs some hundred lines at this level: more than the queue and the pipe hold.
    for i in 0..400 {
        let id = format!("c{i}");
        evaluate(&mut client, question(&format!("s{i}"), call(&id, "look", "{}"))).await;
        record(&mut client, success(&format!("s{i}"), &id, "row")).await;
    }
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut part = vec![0; 1 << 16];
        while let Ok(read @ 1..) = reader.read(&mut part) {
            heard.lock().expect("no panic").push_str(&String::from_utf8_lossy(&part[..read]));
        }
    });
    let is_told = async || said.lock().expect("no panic").contains("log lines were lost: the reader of standard error");
    until("what was lost is told", is_told).await;
}
