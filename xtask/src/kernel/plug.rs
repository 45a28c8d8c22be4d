//! Memory for a running machine, through QEMU's monitor.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nearpage::NodeId;
use serde_json::{Value, json};

use super::KernelError;

/// Plugs memory into a node.
///
/// # Errors
///
/// [`KernelError`] if the monitor refuses.
pub fn plug(monitor: &Path, mib: u32, node: NodeId) -> Result<(), KernelError> {
    let stream = UnixStream::connect(monitor).map_err(KernelError::io("QEMU's monitor"))?;
    let mut answers =
        BufReader::new(stream.try_clone().map_err(KernelError::io("QEMU's monitor"))?);
    let size = u64::from(mib) << 20;
    let backend = json!({"qom-type": "memory-backend-ram", "id": "plugged", "size": size});
    let device = json!({"driver": "pc-dimm", "id": "dimm", "memdev": "plugged", "node": node.0});
    for (name, arguments) in
        [("qmp_capabilities", json!({})), ("object-add", backend), ("device_add", device)]
    {
        let command = json!({"execute": name, "arguments": arguments});
        writeln!(&stream, "{command}").map_err(KernelError::io("QEMU's monitor"))?;
        answer(&mut answers, name)?;
    }
    Ok(())
}

/// Waits for the answer to a command; events and the greeting come between.
fn answer(answers: &mut BufReader<UnixStream>, name: &str) -> Result<(), KernelError> {
    let mut line = String::new();
    loop {
        line.clear();
        if answers.read_line(&mut line).map_err(KernelError::io("QEMU's monitor"))? == 0 {
            return Err(KernelError::Monitor(format!("{name}: it has gone")));
        }
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(error) = value.get("error") {
            return Err(KernelError::Monitor(format!("{name}: {error}")));
        }
        if value.get("return").is_some() {
            return Ok(());
        }
    }
}
