//! Images of containers, by `packaging/Containerfile`: the static program, and nearpage-fleet.

use std::fs;
use std::process::Command;

use super::check::expect;
use super::{Dist, PROCESSOR, Result, VERSION, at_most, has, output, roots};

/// The images, by the stages of the file.
const IMAGES: [&str; 2] = ["nearpage", "fleet"];
/// The second starts with these.
const PYTHON: &str = "/usr/bin/python3.11";
const FLEET: &str = "/usr/local/lib/python3.11/dist-packages/bin/nearpage-fleet";
/// The most that is pulled of one.
const BYTES_MOST: u64 = 60_000_000;

pub(super) fn make(dist: &Dist) -> Result {
    if !has("buildah", "images of containers", "buildah") {
        return Ok(());
    }
    let Some(base) = base(dist)? else { return Ok(()) };
    for image in IMAGES {
        let name = format!("nearpage-{image}:{VERSION}");
        let mut command = buildah(dist, "build");
        command.args(["--target", image, "--build-arg", &format!("ARCH={PROCESSOR}")]);
        command.args(["--isolation", "chroot", "--build-arg", &format!("BASE={base}")]);
        command.args(["--timestamp", &dist.epoch.to_string(), "--tag", &name, "--file"]);
        command.arg(dist.root.join("packaging/Containerfile")).arg(&dist.out);
        output("buildah build", &mut command)?;
        let to = dist.out.join(format!("nearpage-{image}-{VERSION}-{PROCESSOR}.oci.tar"));
        let _ = fs::remove_file(&to);
        let mut command = buildah(dist, "push");
        let place = format!("oci-archive:{}", to.display());
        output("buildah push", command.args(["--compression-format=zstd", &name, &place]))?;
        at_most(BYTES_MOST, &to)?;
    }
    Ok(())
}

/// The base, made here by debootstrap: no registry of images is needed.
fn base(dist: &Dist) -> Result<Option<String>> {
    let Some(pristine) = roots::pristine(dist, "bookworm", "images of containers")? else {
        return Ok(None);
    };
    let name = "localhost/nearpage-base:bookworm".to_owned();
    let container = output("buildah from", buildah(dist, "from").arg("scratch"))?;
    let container = container.trim();
    output("buildah add", buildah(dist, "add").arg(container).arg(&pristine).arg("/"))?;
    output("buildah commit", buildah(dist, "commit").args(["--rm", container, &name]))?;
    Ok(Some(name))
}

/// Runs what the images are for.
pub(super) fn check(dist: &Dist) -> Result {
    let report = "crates/nearpage-explain/tests/reports/6.12/lowmem-reserve-order3.log";
    let folder = |name: &str| format!("{}:/{name}:ro", dist.root.join(name).display());
    let volumes = [format!("{}:/report:ro", dist.root.join(report).display()), folder("bundles")];
    let uses: [(&str, &[&str], &str); 4] = [
        ("nearpage", &["/nearpage", "explain", "/report"], "verdict"),
        ("nearpage", &["/nearpage", "export", "--textfile", "-"], "nearpage_"),
        (
            "fleet",
            &[PYTHON, FLEET, "ingest", "--store", "/tmp/store", "/bundles/q612-n2-mixed.tar.zst"],
            "q612",
        ),
        ("fleet", &[PYTHON, FLEET, "ls", "--store", "/tmp/store"], "q612"),
    ];
    for image in IMAGES {
        let Some(archive) = dist.package(&format!("nearpage-{image}-"), ".oci.tar")? else {
            continue;
        };
        let from = format!("oci-archive:{}", archive.display());
        let container = output("buildah from", buildah(dist, "from").arg(&from))?;
        for (_, command, part) in uses.iter().filter(|(of, ..)| *of == image) {
            let mut run = buildah(dist, "run");
            run.args(["--isolation", "chroot"]);
            volumes.iter().for_each(|volume| _ = run.args(["--volume", volume]));
            let printed =
                output("buildah run", run.arg(container.trim()).arg("--").args(*command))?;
            expect(&printed, part, &command.join(" "))?;
            println!("the image {image}: {} is used", command[..3].join(" "));
        }
        output("buildah rm", buildah(dist, "rm").arg(container.trim()))?;
    }
    Ok(())
}

/// A command of buildah with a storage of its own, as it works within a container, too.
fn buildah(dist: &Dist, name: &str) -> Command {
    let mut command = Command::new("buildah");
    command.args(["--storage-driver", "vfs", "--root"]).arg(dist.target.join("images"));
    command.arg("--runroot").arg(dist.target.join("images-run")).arg(name);
    command
}
