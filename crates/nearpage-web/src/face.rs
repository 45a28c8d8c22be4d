//! What JavaScript sees. The worker that loads this defines the two functions it calls.

use std::ops::ControlFlow;

use nearpage_machine::escaped;
use wasm_bindgen::prelude::*;

use crate::error::WebError;
use crate::question::Question;

#[wasm_bindgen]
extern "C" {
    /// How far the work is.
    #[wasm_bindgen(js_name = nearpageProgress)]
    fn progress(done: f64, all: f64);
    /// What a panic says, before the module ends in a trap.
    #[wasm_bindgen(js_name = nearpagePanic)]
    fn panicked(text: &str);
}

/// Makes panics tell what they say.
#[wasm_bindgen(start)]
fn begin() {
    std::panic::set_hook(Box::new(|panic| panicked(&panic.to_string())));
}

/// What may be asked, as JSON.
#[wasm_bindgen]
pub fn about() -> String {
    crate::about()
}

/// Answers a question in JSON about a content, by JSON; an error is a text.
#[wasm_bindgen]
pub fn answer(question: &str, content: &[u8]) -> Result<String, String> {
    let answered = || -> Result<String, WebError> {
        let question: Question = serde_json::from_str(question)?;
        let watched = |done: u64, all: u64| {
            progress(done as f64, all as f64);
            ControlFlow::Continue(())
        };
        Ok(serde_json::to_string(&crate::answer(&question, content, &watched)?)?)
    };
    answered().map_err(|error| escaped(&error.to_string()).into_owned())
}
