//! Samples of program counters, and the instructions. They are in tables of midair's, which only files of
//! sessions with samples have.

use super::describe::Described;
use super::facts::header;
use super::{Session, Stopped};
use crate::window::Window;
use midair_output::RecordWriter;
use midair_record::event::{self, Instruction, PcSample, kind};

/// The most bytes of an instruction, and of its line in the sources.
const LONGEST: usize = 512;

/// Appends a record for each instruction and each sample.
pub(super) fn read(
    session: &Session<'_>,
    described: &Described,
    window: Option<Window>,
    writer: &mut RecordWriter,
) -> Result<(), Stopped> {
    if session.has("midair_instruction")? {
        instructions(session, writer)?;
    }
    if session.has("midair_pc_sample")? {
        samples(session, described, window, writer)?;
    }
    Ok(())
}

fn instructions(session: &Session<'_>, writer: &mut RecordWriter) -> Result<(), Stopped> {
    let question = format!(
        "SELECT code_object_id, code_object_offset, instruction, comment FROM {} ORDER BY id",
        session.part.table("midair_instruction")
    );
    let mut statement = session.connection.prepare(&question)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        let text = |at: usize| -> rusqlite::Result<String> {
            let mut text: String = row.get(at)?;
            text.truncate(text.floor_char_boundary(LONGEST));
            Ok(text)
        };
        let record = Instruction::record(number(0)?, number(1)?, &text(2)?, &text(3)?);
        writer.append(&record)?;
    }
    Ok(())
}

fn samples(
    session: &Session<'_>,
    described: &Described,
    window: Option<Window>,
    writer: &mut RecordWriter,
) -> Result<(), Stopped> {
    let within = window.map_or_else(String::new, |window| window.of_table("midair_pc_sample"));
    let question = format!(
        "SELECT method, \"timestamp\", address, exec_mask, dispatch_id, stack_id, code_object_id, code_object_offset, agent_id, hw_id, \
         wave_in_group, chiplet, workgroup_x, workgroup_y, workgroup_z, snapshot_0, snapshot_1, snapshot_2 FROM {}{within} ORDER BY id",
        session.part.table("midair_pc_sample")
    );
    let mut statement = session.connection.prepare(&question)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        // A number that a file invents loses its upper half.
        let word = |at: usize| number(at).map(|number| number as u32);
        let method: String = row.get(0)?;
        let kind = match method.as_str() {
            "stochastic" => kind::PC_SAMPLING_STOCHASTIC,
            _ => kind::PC_SAMPLING_HOST_TRAP,
        };
        let node = described.nodes.get(&row.get::<_, i64>(8)?).copied();
        let sample = PcSample {
            header: header(kind, 0),
            time: number(1)?,
            pc: number(2)?,
            exec_mask: number(3)?,
            dispatch_id: number(4)?,
            correlation: number(5)?,
            code_object_id: number(6)?,
            offset: number(7)?,
            node: node.unwrap_or_default(),
            hw_id: word(9)?,
            wave_in_group: word(10)?,
            chiplet: word(11)?,
            workgroup: [word(12)?, word(13)?, word(14)?],
            snapshot: [word(15)?, word(16)?, word(17)?],
        };
        writer.append(&event::encode(&sample, &[]))?;
    }
    Ok(())
}
