// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
)

// remainder is what a write of a status leaves as it is: the fields at the root of a large object but its identity and its status. A spec of three megabytes
// would be hundreds of them in memory, several times. They are neither decoded nor compared, and sent as they were read. It is for one write, and not safe for
// concurrent use.
type remainder struct{ fields map[string]json.RawMessage }

// largeBody is from how many bytes on an object has one.
const largeBody = 64 << 10

type remainderKey struct{}

type wholeKey struct{}

// WithWholeObjects returns a context for writes of a status that depend on other fields of the object: they are decoded then, however large they are.
func WithWholeObjects(ctx context.Context) context.Context {
	return context.WithValue(ctx, wholeKey{}, true)
}

// withRemainder returns a context for a write of the status of an object; for others it is the same one.
func withRemainder(ctx context.Context, ref Ref) context.Context {
	if ref.Subresource != "status" || ctx.Value(wholeKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, remainderKey{}, &remainder{})
}

func remainderIn(ctx context.Context) *remainder {
	r, _ := ctx.Value(remainderKey{}).(*remainder)
	return r
}

// fold returns the body of a response without the remainder. One that is small, or no object, stays as it is. A nil remainder changes nothing.
func (r *remainder) fold(body []byte) []byte {
	if r == nil {
		return body
	}
	if r.fields = nil; len(body) < largeBody {
		return body
	}
	fields := rootFields(body)
	if _, isList := fields["items"]; fields == nil || isList {
		return body
	}
	head, rest := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for name, value := range fields {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
			head[name] = value
		default:
			rest[name] = value
		}
	}
	folded, err := json.Marshal(head)
	if err != nil {
		return body
	}
	r.fields = rest
	return folded
}

// unfold returns the body of a request with the remainder of the object that was read.
func (r *remainder) unfold(body []byte) ([]byte, error) {
	if r == nil || len(r.fields) == 0 {
		return body, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	for name, value := range r.fields {
		if _, isSent := fields[name]; !isSent {
			fields[name] = value
		}
	}
	return json.Marshal(fields)
}

// ofHead are the fields of the metadata that say which object it is, and whether it is held.
var ofHead = []string{"name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"}

// headsOf returns the body of a response with what says which object it is and whether a finalizer holds it, or so of the items of a list, and without the rest. A Status, one that
// is small, or no object, stays as it is.
func headsOf(body []byte) []byte {
	if len(body) < largeBody {
		return body
	}
	fields := rootFields(body)
	if fields == nil || string(fields["kind"]) == `"Status"` {
		return body
	}
	head := some(fields, "apiVersion", "kind")
	metadata := rootFields(fields["metadata"])
	of := some(metadata, ofHead...)
	if finalizers := elements(metadata["finalizers"]); len(finalizers) > 0 {
		of["finalizers"], _ = json.Marshal(finalizers[:1])
	}
	head["metadata"], _ = json.Marshal(of)
	if items := elements(fields["items"]); items != nil {
		for i := range items {
			items[i] = headsOf(items[i])
		}
		head["items"], _ = json.Marshal(items)
	}
	folded, err := json.Marshal(head)
	if err != nil {
		return body
	}
	return folded
}

// some are the fields of those names.
func some(fields map[string]json.RawMessage, names ...string) map[string]json.RawMessage {
	of := map[string]json.RawMessage{}
	for _, name := range names {
		if value, has := fields[name]; has {
			of[name] = value
		}
	}
	return of
}

// elements are those of a JSON list, as parts of its text; nil if it is none.
func elements(text []byte) []json.RawMessage {
	rest, is := bytes.CutPrefix(bytes.TrimSpace(text), []byte("["))
	if !is {
		return nil
	}
	all := []json.RawMessage{}
	for {
		rest = bytes.TrimLeft(rest, ", \t\r\n")
		if bytes.HasPrefix(rest, []byte("]")) {
			return all
		}
		end := endOfValue(rest)
		if end == 0 {
			return nil
		}
		all, rest = append(all, json.RawMessage(rest[:end:end])), rest[end:]
	}
}

// rootFields are the fields at the root of a JSON object, as parts of its text; nil if it is none. What is in them is checked when it is decoded or encoded.
func rootFields(text []byte) map[string]json.RawMessage {
	rest, is := bytes.CutPrefix(bytes.TrimSpace(text), []byte("{"))
	if !is {
		return nil
	}
	fields := map[string]json.RawMessage{}
	for {
		rest = bytes.TrimLeft(rest, ", \t\r\n")
		if bytes.HasPrefix(rest, []byte("}")) {
			return fields
		}
		end := endOfValue(rest)
		var name string
		if end == 0 || json.Unmarshal(rest[:end], &name) != nil {
			return nil
		}
		if rest, is = bytes.CutPrefix(bytes.TrimLeft(rest[end:], " \t\r\n"), []byte(":")); !is {
			return nil
		}
		rest = bytes.TrimLeft(rest, " \t\r\n")
		if end = endOfValue(rest); end == 0 {
			return nil
		}
		fields[name], rest = json.RawMessage(rest[:end:end]), rest[end:]
	}
}

// endOfValue is the length of the JSON value that a text begins with, 0 if it has no end.
func endOfValue(text []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			if inString = !inString; !inString && depth == 0 {
				return i + 1
			}
		case inString:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth < 0 { // it ends what is around a number or a word
				return i
			} else if depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return i
		}
	}
	return 0
}
