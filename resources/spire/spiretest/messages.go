// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// definitions are the messages of the service, a field each: number, name, type. A type that begins with * is repeated.
var definitions = map[string]string{
	"SPIFFEID":                 "1 trust_domain string, 2 path string",
	"Selector":                 "1 type string, 2 value string",
	"SelectorMatch":            "1 selectors *Selector, 2 match int32",
	"Status":                   "1 code int32, 2 message string",
	"Entry":                    "1 id string, 2 spiffe_id SPIFFEID, 3 parent_id SPIFFEID, 4 selectors *Selector, 5 x509_svid_ttl int32, 6 federates_with *string, 7 admin bool, 8 downstream bool, 9 expires_at int64, 10 dns_names *string, 11 revision_number int64, 12 store_svid bool, 13 jwt_svid_ttl int32, 14 hint string, 15 created_at int64",
	"Filter":                   "1 by_spiffe_id SPIFFEID, 2 by_parent_id SPIFFEID, 3 by_selectors SelectorMatch",
	"EntryMask":                "2 spiffe_id bool, 3 parent_id bool, 4 selectors bool, 14 hint bool",
	"ListEntriesRequest":       "1 filter Filter, 2 output_mask EntryMask, 3 page_size int32, 4 page_token string",
	"ListEntriesResponse":      "1 entries *Entry, 2 next_page_token string",
	"CountEntriesRequest":      "1 filter Filter",
	"CountEntriesResponse":     "1 count int32",
	"BatchCreateEntryRequest":  "1 entries *Entry, 2 output_mask EntryMask",
	"CreateResult":             "1 status Status, 2 entry Entry",
	"BatchCreateEntryResponse": "1 results *CreateResult",
	"BatchDeleteEntryRequest":  "1 ids *string",
	"DeleteResult":             "1 status Status, 2 id string",
	"BatchDeleteEntryResponse": "1 results *DeleteResult",
}

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL,
	"int32": descriptorpb.FieldDescriptorProto_TYPE_INT32, "int64": descriptorpb.FieldDescriptorProto_TYPE_INT64,
}

// messages are the descriptors of the definitions. They are registered nowhere.
var messages = func() protoreflect.MessageDescriptors {
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("simulated.proto"), Package: proto.String("simulated"), Syntax: proto.String("proto3")}
	for name, fields := range definitions {
		m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for text := range strings.SplitSeq(fields, ", ") {
			m.Field = append(m.Field, parseField(text))
		}
		file.MessageType = append(file.MessageType, m)
	}
	made, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return made.Messages()
}()

func parseField(text string) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{Name: new(string), Number: new(int32), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	var kind string
	if _, err := fmt.Sscan(text, f.Number, f.Name, &kind); err != nil {
		panic(err)
	}
	if strings.HasPrefix(kind, "*") {
		kind, f.Label = kind[1:], descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	if scalar, ok := scalars[kind]; ok {
		f.Type = &scalar
	} else {
		f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".simulated."+kind)
	}
	return f
}

// method is a method of the service whose messages a function sees as JSON.
func method[In, Out any](s *Server, name string, serve func(context.Context, In) (Out, error)) grpc.MethodDesc {
	handler := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := dynamicpb.NewMessage(messages.ByName(protoreflect.Name(name + "Request")))
		if err := decode(request); err != nil {
			return nil, err
		}
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(request)
		if err != nil {
			return nil, err
		}
		if err := s.admit(ctx, name, request, text); err != nil {
			return nil, err
		}
		var in In
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, err
		}
		out, err := serve(ctx, in)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(out); err != nil {
			return nil, err
		}
		answer := dynamicpb.NewMessage(messages.ByName(protoreflect.Name(name + "Response")))
		return answer, protojson.Unmarshal(text, answer)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}
