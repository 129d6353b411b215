// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// list decodes a list as it is read and passes on its objects. The type of a list of
// custom resources is known at its end: the fields are sorted.
func (d *decoder[P]) list(r io.Reader, item func(runtime.Object)) (metav1.ListMeta, error) {
	br := bufio.NewReaderSize(r, listBuffer)
	enc, err := sniff(br)
	if err != nil {
		return metav1.ListMeta{}, unexpectedEOF(err)
	}
	read := d.listProtobuf
	if enc == inJSON {
		read = d.listJSON
	}
	head, meta, err := read(br, item)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	return meta, d.verify(head)
}

func (d *decoder[P]) listProtobuf(r *bufio.Reader, item func(runtime.Object)) (head metav1.TypeMeta, meta metav1.ListMeta, err error) {
	start := make([]byte, len(envelope))
	if _, err := io.ReadFull(r, start); err != nil {
		return head, meta, unexpectedEOF(err)
	}
	if !bytes.Equal(start, envelope) {
		return head, meta, fmt.Errorf("list does not begin with %q", envelope)
	}
	var buf []byte
	err = readFields(r, func(num protowire.Number, length uint64) error {
		if num == unknownTypeMeta {
			message, err := readMessage(r, &buf, length)
			if err == nil {
				head, err = typeMeta(message)
			}
			return err
		}
		if num != unknownRaw {
			_, err := io.CopyN(io.Discard, r, int64(length))
			return unexpectedEOF(err)
		}
		within := &io.LimitedReader{R: r, N: int64(length)}
		body := bufio.NewReader(within)
		err := readFields(body, func(num protowire.Number, length uint64) error {
			message, err := readMessage(body, &buf, length)
			if err != nil {
				return err
			}
			switch num {
			case listMetadata:
				return meta.Unmarshal(message)
			case listItems:
				item(d.read(message, inProtobuf))
			}
			return nil
		})
		if err == nil && within.N > 0 {
			err = io.ErrUnexpectedEOF // cut between two items
		}
		return err
	})
	return head, meta, err
}

// readFields reads a message whose fields are all length-delimited, as those of
// runtime.Unknown and of lists are, up to the end of r.
func readFields(r *bufio.Reader, field func(num protowire.Number, length uint64) error) error {
	for {
		tag, err := binary.ReadUvarint(r)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return unexpectedEOF(err)
		}
		num, typ := protowire.DecodeTag(tag)
		if typ != protowire.BytesType {
			return fmt.Errorf("list: field %d has wire type %d", num, typ)
		}
		length, err := binary.ReadUvarint(r)
		if err != nil {
			return unexpectedEOF(err)
		}
		if length > 1<<40 {
			return fmt.Errorf("list: field %d of %d bytes", num, length)
		}
		if err := field(num, length); err != nil {
			return err
		}
	}
}

func (d *decoder[P]) listJSON(r *bufio.Reader, item func(runtime.Object)) (head metav1.TypeMeta, meta metav1.ListMeta, err error) {
	dec := json.NewDecoder(r)
	if err := expectDelim(dec, '{'); err != nil {
		return head, meta, err
	}
	var raw json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return head, meta, unexpectedEOF(err)
		}
		switch name {
		case "apiVersion":
			err = dec.Decode(&head.APIVersion)
		case "kind":
			err = dec.Decode(&head.Kind)
		case "metadata":
			err = dec.Decode(&meta)
		case "items":
			err = d.itemsJSON(dec, &raw, item)
		default:
			err = dec.Decode(&raw)
		}
		if err != nil {
			return head, meta, fmt.Errorf("list: %v: %w", name, unexpectedEOF(err))
		}
	}
	return head, meta, expectDelim(dec, '}')
}

func (d *decoder[P]) itemsJSON(dec *json.Decoder, raw *json.RawMessage, item func(runtime.Object)) error {
	start, err := dec.Token()
	if err != nil || start == nil { // null: no items
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("%v in place of a list", start)
	}
	for dec.More() {
		if err := dec.Decode(raw); err != nil {
			return err
		}
		item(d.read(*raw, inJSON))
	}
	return expectDelim(dec, ']')
}

func expectDelim(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	if err != nil {
		return unexpectedEOF(err)
	}
	if token != want {
		return fmt.Errorf("%v in place of %v", token, want)
	}
	return nil
}
