// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package entryapi

import (
	"fmt"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// ID is a SPIFFE ID.
type ID struct {
	TrustDomain string `json:"trust_domain"`
	Path        string `json:"path"`
}

func (i ID) String() string { return "spiffe://" + i.TrustDomain + i.Path }

// Selector is a property of the workloads that an entry is for.
type Selector struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Entry is a registration entry. Its other fields are left at their defaults.
type Entry struct {
	ID        string     `json:"id,omitempty"` // that the server gives it
	SPIFFEID  ID         `json:"spiffe_id"`
	ParentID  ID         `json:"parent_id"`
	Selectors []Selector `json:"selectors"`
}

// Result is what became of one entry of a batch.
type Result struct {
	Code    codes.Code
	Message string
	Entry   Entry // of a creation: the entry that was created or that existed
}

// The numbers of fields.
const (
	idTrustDomain protowire.Number = 1
	idPath        protowire.Number = 2

	selectorType  protowire.Number = 1
	selectorValue protowire.Number = 2

	entryID        protowire.Number = 1
	entrySPIFFEID  protowire.Number = 2
	entryParentID  protowire.Number = 3
	entrySelectors protowire.Number = 4

	statusCode    protowire.Number = 1
	statusMessage protowire.Number = 2

	matchSelectors protowire.Number = 1 // the default of how they match is exactly

	filterParentID  protowire.Number = 2
	filterSelectors protowire.Number = 3

	listFilter    protowire.Number = 1
	listMask      protowire.Number = 2
	listPageSize  protowire.Number = 3
	listPageToken protowire.Number = 4

	listedEntries   protowire.Number = 1
	listedPageToken protowire.Number = 2

	counted protowire.Number = 1

	batchItems   protowire.Number = 1 // entries, ids or results
	batchMask    protowire.Number = 2 // of creations
	resultStatus protowire.Number = 1
	resultEntry  protowire.Number = 2
)

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

func (i ID) marshal() []byte {
	return appendString(appendString(nil, idTrustDomain, i.TrustDomain), idPath, i.Path)
}

func appendSelectors(b []byte, field protowire.Number, all []Selector) []byte {
	for _, s := range all {
		b = appendMessage(b, field, appendString(appendString(nil, selectorType, s.Type), selectorValue, s.Value))
	}
	return b
}

func (e Entry) marshal() []byte {
	b := appendString(nil, entryID, e.ID)
	b = appendMessage(b, entrySPIFFEID, e.SPIFFEID.marshal())
	b = appendMessage(b, entryParentID, e.ParentID.marshal())
	return appendSelectors(b, entrySelectors, e.Selectors)
}

func (f Filter) marshal() []byte {
	filter := appendMessage(nil, filterParentID, f.ParentID.marshal())
	if len(f.Selectors) > 0 {
		filter = appendMessage(filter, filterSelectors, appendSelectors(nil, matchSelectors, f.Selectors))
	}
	return filter
}

// appendMask appends which fields of entries are answered, by their numbers. The id always is.
func appendMask(b []byte, field protowire.Number, wanted ...protowire.Number) []byte {
	var mask []byte
	for _, number := range wanted {
		mask = protowire.AppendVarint(protowire.AppendTag(mask, number, protowire.VarintType), 1)
	}
	return appendMessage(b, field, mask)
}

// marshalList asks for the fields that are decoded, and no others: a page of entries with many DNS names may be larger than a message can be.
func marshalList(f Filter, size int32, token string) []byte {
	b := appendMessage(nil, listFilter, f.marshal())
	b = appendMask(b, listMask, entrySPIFFEID, entryParentID, entrySelectors)
	b = protowire.AppendVarint(protowire.AppendTag(b, listPageSize, protowire.VarintType), uint64(size)) //nolint:gosec // it is positive
	return appendString(b, listPageToken, token)
}

// field is a field of a message: bytes, or a number.
type field struct {
	number protowire.Number
	bytes  []byte
	varint uint64
}

// fields yields the fields of a message that have one of the types used here, or the error of one that cannot be decoded.
func fields(message []byte) iter.Seq2[field, error] {
	return func(yield func(field, error) bool) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				yield(field{}, protowire.ParseError(n))
				return
			}
			message = message[n:]
			f := field{number: number}
			switch kind {
			case protowire.BytesType:
				f.bytes, n = protowire.ConsumeBytes(message)
			case protowire.VarintType:
				f.varint, n = protowire.ConsumeVarint(message)
			default:
				f.number = 0
				n = protowire.ConsumeFieldValue(number, kind, message)
			}
			if n < 0 {
				yield(field{}, protowire.ParseError(n))
				return
			}
			message = message[n:]
			if !yield(f, nil) {
				return
			}
		}
	}
}

// decode passes the fields of a message to set, and returns the first error.
func decode(what string, message []byte, set func(field) error) error {
	for f, err := range fields(message) {
		if err == nil {
			err = set(f)
		}
		if err != nil {
			return fmt.Errorf("decoding %s: %w", what, err)
		}
	}
	return nil
}

func (i *ID) unmarshal(message []byte) error {
	return decode("a SPIFFE ID", message, func(f field) error {
		switch f.number {
		case idTrustDomain:
			i.TrustDomain = string(f.bytes)
		case idPath:
			i.Path = string(f.bytes)
		}
		return nil
	})
}

func (s *Selector) unmarshal(message []byte) error {
	return decode("a selector", message, func(f field) error {
		switch f.number {
		case selectorType:
			s.Type = string(f.bytes)
		case selectorValue:
			s.Value = string(f.bytes)
		}
		return nil
	})
}

func (e *Entry) unmarshal(message []byte) error {
	return decode("an entry", message, func(f field) error {
		switch f.number {
		case entryID:
			e.ID = string(f.bytes)
		case entrySPIFFEID:
			return e.SPIFFEID.unmarshal(f.bytes)
		case entryParentID:
			return e.ParentID.unmarshal(f.bytes)
		case entrySelectors:
			var s Selector
			err := s.unmarshal(f.bytes)
			e.Selectors = append(e.Selectors, s)
			return err
		}
		return nil
	})
}

func (r *Result) unmarshalCreated(message []byte) error {
	return decode("a result", message, func(f field) error {
		switch f.number {
		case resultStatus:
			return r.unmarshalStatus(f.bytes)
		case resultEntry:
			return r.Entry.unmarshal(f.bytes)
		}
		return nil
	})
}

// unmarshalDeleted decodes the result of a deletion, which has the id in place of the entry.
func (r *Result) unmarshalDeleted(message []byte) error {
	return decode("a result", message, func(f field) error {
		if f.number == resultStatus {
			return r.unmarshalStatus(f.bytes)
		}
		return nil
	})
}

func (r *Result) unmarshalStatus(message []byte) error {
	return decode("a status", message, func(f field) error {
		switch f.number {
		case statusCode:
			r.Code = codes.Code(f.varint) //nolint:gosec // codes that do not fit are unknown all the same
		case statusMessage:
			r.Message = string(f.bytes)
		}
		return nil
	})
}
