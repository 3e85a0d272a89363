//! Protocol Buffers, as far as pprof, OpenTelemetry and Parca need them: numbers, texts, lists of numbers, and messages
//! within messages.
//!
//! Must hold: a field that has its default value (0, an empty text) is left out, as all encoders do.

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;

/// The fields of a message.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            varint(&mut self.0, field << 3 | VARINT);
            varint(&mut self.0, value);
        }
        self
    }

    /// A number that always has eight bytes (`fixed64`).
    pub fn fixed(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            varint(&mut self.0, field << 3 | EIGHT_BYTES);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    pub fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        if !value.is_empty() {
            self.always(field, value);
        }
        self
    }

    /// As `bytes`, for elements of lists, which count even if they are empty.
    pub fn always(&mut self, field: u64, value: &[u8]) -> &mut Self {
        varint(&mut self.0, field << 3 | BYTES);
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn message(&mut self, field: u64, value: &Message) -> &mut Self {
        self.always(field, &value.0)
    }

    /// A list of numbers, packed. Zeros count.
    pub fn numbers(&mut self, field: u64, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Vec::new();
        values.into_iter().for_each(|value| varint(&mut packed, value));
        self.bytes(field, &packed)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own documentation.
    #[test]
    fn fields_are_encoded_as_documented() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.as_bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.bytes(2, b"testing");
        assert_eq!(message.as_bytes(), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let mut packed = Message::default();
        packed.numbers(6, [3, 270, 86942]);
        assert_eq!(packed.as_bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let mut outer = Message::default();
        outer.number(4, 0).bytes(5, b"").message(3, &Message::default());
        assert_eq!(outer.as_bytes(), [0x1a, 0x00]);
        outer.clear();
        outer.number(1, -2i64 as u64);
        assert_eq!(outer.as_bytes().len(), 11);
    }
}
