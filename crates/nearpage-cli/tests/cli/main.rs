//! The commands as users run them, and what a program can judge about the sources. One binary: linking is most of
//! what a small test costs.

mod bench;
mod doctor;
mod drawn;
mod explain;
mod export;
mod globals;
mod lab;
mod layers;
mod limits;
mod packages;
mod proc;
mod record;
mod report;
mod run;
mod strangers;
mod tidy;
mod top;
mod topo;
mod trace;
mod vmcore;
