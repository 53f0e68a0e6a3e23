//! Reports of the virtual CPU, on their way to the thread that shows them.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use lwp_profile::{Block, RecordedModule, ThreadExecutions};
use lwp_vcpu::profile as vcpu;

use crate::generating::Generating;
use crate::recorded;

/// Something that was reported.
#[derive(Debug)]
pub enum Piece {
    /// A module, and its file.
    Module(RecordedModule, Option<Arc<File>>),
    /// A process whose code has no file.
    Generating(i32),
    /// Blocks.
    Blocks(Vec<Block>),
    /// A thread's executions so far.
    Thread(ThreadExecutions),
}

/// Passes everything on at once: the program must not wait.
#[derive(Debug)]
pub struct Feed {
    pieces: Sender<Piece>,
    generating: Generating,
}

impl Feed {
    /// A feed, and where its pieces arrive; they end when the feed is dropped.
    pub fn new() -> (Self, Receiver<Piece>) {
        let (pieces, arriving) = mpsc::channel();
        (Self { pieces, generating: Generating::default() }, arriving)
    }

    fn pass(&self, piece: Piece) {
        // Nobody looks any more: the program goes on all the same.
        let _ = self.pieces.send(piece);
    }
}

impl vcpu::Sink for Feed {
    fn module(&mut self, module: &vcpu::Module) {
        let piece = recorded::module(module);
        if let Some(process) = self.generating.module(module, piece.is_anonymous()) {
            self.pass(Piece::Generating(process));
        }
        self.pass(Piece::Module(piece, module.file.clone()));
    }

    fn blocks(&mut self, blocks: &[vcpu::Block]) {
        self.generating.blocks(blocks);
        self.pass(Piece::Blocks(blocks.iter().map(recorded::block).collect()));
    }

    fn thread(&mut self, thread: &vcpu::ThreadExecutions) {
        if let Some(process) = self.generating.thread(thread) {
            self.pass(Piece::Generating(process));
        }
        self.pass(Piece::Thread(recorded::thread(thread)));
    }

    fn sample(&mut self, _: &vcpu::Sample<'_>) {}
}
