// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// message is a message of Envoy's API.
type message interface {
	proto.Message
	ValidateAll() error
}

// encode validates a message, and returns it as JSON with its keys sorted.
func encode(m message) (json.RawMessage, error) {
	if err := m.ValidateAll(); err != nil {
		return nil, err
	}
	return encodeValid(m)
}

// encodeHost is encode for a virtual host, of whose routes one after the other is text: what canonical makes of thousands of them at once would need some ten times the
// memory of the text. The routes are gone from the message then.
func encodeHost(v *routev3.VirtualHost) (json.RawMessage, error) {
	if err := v.ValidateAll(); err != nil {
		return nil, err
	}
	routes := v.Routes
	v.Routes = nil
	text, err := encode(v)
	if err != nil || len(routes) == 0 {
		return text, err
	}
	items := make([]json.RawMessage, len(routes))
	for i, r := range routes {
		if items[i], err = encodeValid(r); err != nil {
			return nil, err
		}
		routes[i] = nil
	}
	return withList(text, "routes", items)
}

// encodeValid is encode without the check.
func encodeValid(m proto.Message) (json.RawMessage, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", m, err)
	}
	return canonical(text)
}

// encodeAny is encode with the type of the message.
func encodeAny(m message) (json.RawMessage, error) {
	if err := m.ValidateAll(); err != nil {
		return nil, err
	}
	packed, err := anypb.New(m)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", m, err)
	}
	return encodeValid(packed)
}

// canonical returns JSON with keys sorted and without white space: protojson's is not stable.
func canonical(text []byte) (json.RawMessage, error) {
	var v any
	if err := utiljson.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	return marshal(v)
}

// marshal encodes a value on one line, without escapes for HTML.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// withList is a JSON object with one more field, or another value of it: a list of items. All are canonical, and so is the result. Items are most of the
// text, and are copied as they are: the encoder would read each byte of them again.
func withList(object json.RawMessage, field string, items []json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	fields[field] = nil
	size := len(object) + len(field) + len(`,"":[]`) + len(items)
	for _, item := range items {
		size += len(item)
	}
	b := append(make([]byte, 0, size), '{')
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, err := marshal(name)
		if err != nil {
			return nil, err
		}
		b = append(append(b, key...), ':')
		if name == field {
			b = appendList(b, items)
		} else {
			b = append(b, fields[name]...)
		}
		b = append(b, ',')
	}
	b[len(b)-1] = '}'
	return b, nil
}

func appendList(b []byte, items []json.RawMessage) []byte {
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return append(b, ']')
}

// packed is a message of a type that is registered: encoding it does not fail.
func packed(m proto.Message) *anypb.Any {
	a := new(anypb.Any)
	_ = a.MarshalFrom(m)
	return a
}
