//! The rooms of `src/` in the order in which imports may point, as data.
//!
//! A room imports only rooms that stand before it; within a line, from right to left. [`RULES`] says which rooms
//! are held to less than that. ARCHITECTURE.md gives the reasons; adding a room or an edge is a change of design
//! and is made here, in the open.

/// Every room, foremost first; the rooms of one line belong together.
pub(super) const ROOMS: &[&[&str]] = &[
    &["input", "unwind"],
    &["contract"],
    &["world", "workload", "schedule", "lifecycle"],
    &["record"],
    &["weights", "text"],
    &["device"],
    &["engine"],
    &["reference"],
    &["schema", "env", "case"],
    &["subject"],
    &["driver"],
    &["fixture"],
    &["strategy"],
    &["relation"],
    &["coverage"],
    &["harness"],
    &["evidence", "report"],
    &["serve"],
    &["certify"],
    &["bench", BINARY[0], BINARY[1]],
];

/// The rooms of the binary: `src/main.rs` and the modules it declares. Their `crate::` is the binary, so only
/// `lockstep::room` paths leave them.
pub(super) const BINARY: [&str; 2] = ["cli", "main"];

/// Rooms that may read the clock: they measure or wait, and no result of theirs is compared.
pub(super) const CLOCK_ROOMS: &[&str] =
    &["harness", "report", "serve", "certify", "bench", BINARY[0], BINARY[1]];

/// A limit on one room beyond the order.
pub(super) struct Rule {
    /// The room that is held to it.
    room: &'static str,
    /// What it may name.
    limit: Limit,
    /// Why; ends the finding.
    reason: &'static str,
}

/// What a room may name of the rooms before it.
enum Limit {
    /// These rooms only.
    Only(&'static [&'static str]),
    /// Any but these, except below the folders listed.
    Never { rooms: &'static [&'static str], but_in: &'static [(&'static str, &'static str)] },
    /// Of this room, these items only.
    Items { of: &'static str, items: &'static [&'static str] },
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        room: "reference",
        limit: Limit::Never { rooms: &["engine"], but_in: &[] },
        reason: "an oracle that shares code with what it judges shares its faults",
    },
    Rule {
        room: "subject",
        limit: Limit::Never { rooms: &["engine"], but_in: &[] },
        reason: "through this trait the harness sees any engine, not ours",
    },
    Rule {
        room: "strategy",
        limit: Limit::Only(&["contract", "world", "workload", "schedule", "case", "subject"]),
        reason: "a case is drawn from its inputs and the subject's edges, never from how an engine works",
    },
    Rule {
        room: "strategy",
        limit: Limit::Items {
            of: "subject",
            items: &["Capabilities", "Capability", "Edge", "Edges", "edges"],
        },
        reason: "of a subject, a strategy knows where the edges are and what it can do; it never runs one",
    },
    Rule {
        room: "relation",
        limit: Limit::Never { rooms: &["engine", "fixture"], but_in: &[] },
        reason: "a relation holds for any subject",
    },
    Rule {
        room: "relation",
        limit: Limit::Never { rooms: &["device"], but_in: &[("device", "src/relation/x1/")] },
        reason: "only X1 compares devices",
    },
    Rule {
        room: "certify",
        limit: Limit::Never {
            rooms: &["device", "engine", "driver", "fixture", "serve"],
            but_in: &[],
        },
        reason: "the certifier knows a server by its HTTP answers alone; main wires the embedded one",
    },
];

/// Position of a room in the order.
pub(super) fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().copied().flatten().position(|r| *r == room)
}

/// The room of a file: `src/engine/blocks.rs` and `src/engine.rs` are both `engine`. `None` for `src/lib.rs`,
/// which declares the rooms, and for files outside `src/`.
pub(super) fn room_of(path: &str) -> Option<&str> {
    let path = path.strip_prefix("src/")?;
    let first = path.split('/').next().unwrap_or(path);
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (room != "lib").then_some(room)
}

/// Why a file at `path` must not name `target`, a path from the root of the library; `None` if it may.
pub(super) fn verdict(path: &str, target: &[String]) -> Option<String> {
    let room = room_of(path)?;
    let Some(named) = target.first().map(String::as_str) else {
        return Some(format!("room `{room}` names the root of the crate: name the room it means"));
    };
    if named == room {
        return None;
    }
    let Some(named_rank) = rank(named) else {
        return Some(format!("room `{room}` imports `{named}`, which is no room of the list"));
    };
    // A room that is not in the list is a finding of its own.
    let room_rank = rank(room)?;
    if named_rank >= room_rank {
        return Some(format!("room `{room}` imports `{named}`, which stands below it"));
    }
    let item = target.get(1).map(String::as_str);
    let broken = RULES.iter().find(|r| r.room == room && r.limit.forbids(path, named, item))?;
    let named = match broken.limit {
        Limit::Items { .. } => target.join("::"),
        _ => named.to_owned(),
    };
    Some(format!("room `{room}` never imports `{named}`: {}", broken.reason))
}

impl Limit {
    fn forbids(&self, path: &str, named: &str, item: Option<&str>) -> bool {
        match self {
            Limit::Only(rooms) => !rooms.contains(&named),
            Limit::Never { rooms, but_in } => {
                rooms.contains(&named)
                    && !but_in
                        .iter()
                        .any(|(room, folder)| *room == named && path.starts_with(folder))
            }
            Limit::Items { of, items } => {
                *of == named && !item.is_some_and(|item| items.contains(&item))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, target: &str) -> Option<String> {
        verdict(path, &target.split("::").map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_room_stands_in_the_order_once() {
        let all: Vec<&str> = ROOMS.iter().copied().flatten().copied().collect();
        for room in &all {
            assert_eq!(all.iter().filter(|r| r == &room).count(), 1, "{room}");
        }
        for rule in RULES {
            assert!(rank(rule.room).is_some(), "a rule about {}, which is no room", rule.room);
        }
    }

    #[test]
    fn a_file_and_a_folder_are_the_same_room() {
        assert_eq!(room_of("src/engine.rs"), Some("engine"));
        assert_eq!(room_of("src/engine/blocks/pool.rs"), Some("engine"));
        assert_eq!(room_of("src/main.rs"), Some("main"));
        assert_eq!(room_of("src/lib.rs"), None);
        assert_eq!(room_of("tests/relations.rs"), None);
    }

    #[test]
    fn imports_point_up_only() {
        assert_eq!(of("src/engine/mod.rs", "device::Device"), None);
        assert_eq!(of("src/engine/mod.rs", "engine::blocks"), None);
        assert!(of("src/device/mod.rs", "engine::Engine").unwrap().contains("stands below it"));
    }

    #[test]
    fn within_a_line_imports_point_left_only() {
        assert_eq!(of("src/schedule.rs", "workload::Uid"), None);
        assert_eq!(of("src/text.rs", "weights::Gguf"), None);
        assert!(of("src/workload.rs", "schedule::Act").is_some());
        assert!(of("src/env.rs", "case::Case").is_some());
    }

    #[test]
    fn an_unknown_room_is_refused() {
        assert!(of("src/engine.rs", "utils::clamp").unwrap().contains("no room of the list"));
    }

    #[test]
    fn a_strategy_sees_inputs_and_edges_only() {
        for fine in ["world::World", "schedule::Act", "contract::Mode", "subject::Edges"] {
            assert_eq!(of("src/strategy/shrink.rs", fine), None, "{fine}");
        }
        for bad in ["engine::plan", "device::Device", "lifecycle::State", "record::Recorder"] {
            assert!(of("src/strategy/shrink.rs", bad).is_some(), "{bad}");
        }
        let why = of("src/strategy/mod.rs", "subject::Subject").unwrap();
        assert!(why.contains("`subject::Subject`"), "{why}");
        assert!(of("src/strategy/mod.rs", "subject").is_some());
    }

    #[test]
    fn a_relation_never_sees_an_engine_and_x1_alone_sees_a_device() {
        assert_eq!(of("src/relation/i1.rs", "subject::Subject"), None);
        assert!(of("src/relation/i1.rs", "engine::Engine").is_some());
        assert!(of("src/relation/x1/mod.rs", "fixture::Fixture").is_some());
        assert!(of("src/relation/i1.rs", "device::host").is_some());
        assert_eq!(of("src/relation/x1/mod.rs", "device::host"), None);
    }

    #[test]
    fn oracles_and_the_certifier_never_see_the_engine() {
        for path in ["src/certify/http.rs", "src/reference/plain.rs", "src/subject.rs"] {
            assert!(of(path, "engine::Engine").is_some(), "{path}");
        }
        assert_eq!(of("src/certify/http.rs", "evidence::Envelope"), None);
    }
}
