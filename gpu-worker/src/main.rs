//! The one program that loads libtorch. A library starts a fresh one for each request, writes
//! one JSON line to its standard input and reads JSON lines from its standard output
//! (`iteragpu_lab::protocol`). When its input closes, it ends: it never outlives its caller
//! (`early_start.c`).

mod boundary;
mod device_time;
mod environment;
mod failure;
mod measure;
mod model;
mod output;

use std::fs;
use std::io::{self, BufRead};

use iteragpu_lab::protocol::{Failure, Message, Request, VERSION};

use crate::environment::{DriverVersion, add_workspaces, environment};
use crate::output::Output;

fn main() {
    let mut output = Output::new();
    output.send(&Message::Hello { worker_version: VERSION.to_owned() });
    output.flush();
    let message = read_request().and_then(|request| {
        be_first_to_go();
        answer(request, &mut output)
    });
    output.send(&message.unwrap_or_else(|failure| Message::Failed { failure }));
    output.flush();
    boundary::exit(0);
}

fn read_request() -> Result<Request, Failure> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| Failure::BadRequest { words: error.to_string() })?;
    serde_json::from_str(&line).map_err(|error| Failure::BadRequest { words: error.to_string() })
}

fn answer(request: Request, output: &mut Output) -> Result<Message, Failure> {
    let driver = DriverVersion::start_reading();
    match request {
        Request::Environment { device_index } => {
            let mut environment = environment(device_index, driver)?;
            if environment.failure.is_none() {
                add_workspaces(&mut environment);
            }
            Ok(Message::Environment { environment })
        }
        Request::Measure { device_index, configuration, extras } => {
            let environment = environment(device_index, driver)?;
            match (&environment.failure, i32::try_from(device_index)) {
                (Some(failure), _) => Err(failure.clone()),
                (None, Ok(index)) => {
                    output.send(&Message::Ready);
                    output.flush();
                    measure::measure(index, &configuration, extras, environment, output)
                }
                (None, Err(error)) => Err(Failure::BadRequest { words: error.to_string() }),
            }
        }
    }
}

/// When the machine runs out of memory, this process and not the notebook has to go.
fn be_first_to_go() {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}
