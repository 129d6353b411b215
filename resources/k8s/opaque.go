// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OpaqueField is a field at the root of objects that is large, and that one writer has as a whole: the spec of a
// CiliumEnvoyConfig may have a megabyte. With its context, Get, Create and Modify of a Client have a text in place of the value,
// its digest, so that it is neither decoded nor compared part by part. What is sent and stored is the value. It is for one
// write, and not safe for concurrent use.
type OpaqueField struct {
	name   string
	digest func(value []byte) (string, error)
	values map[string]json.RawMessage // by their digest
}

// NewOpaqueField returns the field of a name. digest is equal for values that mean the same.
func NewOpaqueField(name string, digest func(value []byte) (string, error)) *OpaqueField {
	return &OpaqueField{name, digest, map[string]json.RawMessage{}}
}

type opaqueKey struct{}

// With returns a context in which the field is opaque.
func (f *OpaqueField) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, opaqueKey{}, f)
}

// Set sets the field of an object to a value of a digest, if it has another one.
func (f *OpaqueField) Set(obj *unstructured.Unstructured, digest string, value json.RawMessage) {
	f.values[digest] = value
	obj.Object[f.name] = digest
}

func opaqueField(ctx context.Context) *OpaqueField {
	f, _ := ctx.Value(opaqueKey{}).(*OpaqueField)
	return f
}

// unfold returns the body of a request with the value. A nil OpaqueField changes nothing.
func (f *OpaqueField) unfold(body []byte) ([]byte, error) {
	fields, value := f.of(body)
	var digest string
	if fields == nil || json.Unmarshal(value, &digest) != nil {
		return body, nil
	}
	if fields[f.name] = f.values[digest]; fields[f.name] == nil {
		return nil, fmt.Errorf("the field %s has the digest %q of no value: set it with OpaqueField.Set", f.name, digest)
	}
	return json.Marshal(fields)
}

// fold returns the body of a response with the digest, of a list with that of each item. One that is no object with the field stays as it is: a
// value that is decoded is another one than any digest. For the digest the value may be decoded, as others have changed it: one that needs much
// memory waits for its turn before that. The error is that of ctx.
func (f *OpaqueField) fold(ctx context.Context, body []byte) ([]byte, error) {
	fields, value := f.of(body)
	if fields == nil {
		return f.foldList(ctx, body)
	}
	if err := awaitTurn(ctx, body); err != nil {
		return nil, err
	}
	digest, err := f.digest(value)
	if err != nil {
		return body, nil
	}
	f.values[digest] = value
	if fields[f.name], err = json.Marshal(digest); err != nil {
		return body, nil
	}
	folded, err := json.Marshal(fields)
	if err != nil {
		return body, nil
	}
	return folded, nil
}

// foldList returns the body of a list with the digests of its items.
func (f *OpaqueField) foldList(ctx context.Context, body []byte) ([]byte, error) {
	if f == nil {
		return body, nil
	}
	fields := rootFields(body)
	items := elements(fields["items"])
	if len(items) == 0 {
		return body, nil
	}
	for i, item := range items {
		folded, err := f.fold(ctx, item)
		if err != nil {
			return nil, err
		}
		items[i] = folded
	}
	var err error
	if fields["items"], err = json.Marshal(items); err != nil {
		return body, nil
	}
	folded, err := json.Marshal(fields)
	if err != nil {
		return body, nil
	}
	return folded, nil
}

// of are the fields of a body, and the value of this one; nil without.
func (f *OpaqueField) of(body []byte) (fields map[string]json.RawMessage, value json.RawMessage) {
	if f == nil || json.Unmarshal(body, &fields) != nil || fields[f.name] == nil {
		return nil, nil
	}
	return fields, fields[f.name]
}
