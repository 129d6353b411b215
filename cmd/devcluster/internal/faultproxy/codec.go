// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// eventCodec knows where one event of a watch ends and the next begins.
type eventCodec struct {
	// reader returns a function that returns the next event, framing included.
	reader func(io.Reader) func() ([]byte, error)
	// expired is the ERROR event that says 410 Gone; empty if the encoding is
	// unknown.
	expired []byte
}

var (
	jsonCodec     = eventCodec{readJSON, mustEncode(encodeExpiredJSON)}
	protobufCodec = eventCodec{readLengthDelimited, mustEncode(encodeExpiredProtobuf)}
	rawCodec      = eventCodec{reader: readRaw}
)

// codecFor picks a codec by the answer's content type. An encoding that is not
// understood passes in the pieces in which it comes.
func codecFor(contentType string) eventCodec {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return rawCodec
	}
	switch mediaType {
	case runtime.ContentTypeJSON:
		return jsonCodec
	case runtime.ContentTypeProtobuf:
		return protobufCodec
	}
	return rawCodec
}

func readJSON(r io.Reader) func() ([]byte, error) {
	decoder := json.NewDecoder(r)
	return func() ([]byte, error) {
		var event json.RawMessage
		if err := decoder.Decode(&event); err != nil {
			return nil, err
		}
		return append(event, '\n'), nil
	}
}

func readLengthDelimited(r io.Reader) func() ([]byte, error) {
	return func() ([]byte, error) {
		var length [4]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return nil, err
		}
		var event bytes.Buffer
		event.Write(length[:])
		// Copied, not allocated at once: the length is the peer's claim.
		if _, err := io.CopyN(&event, r, int64(binary.BigEndian.Uint32(length[:]))); err != nil {
			return nil, err
		}
		return event.Bytes(), nil
	}
}

func readRaw(r io.Reader) func() ([]byte, error) {
	buf := make([]byte, chunkSize)
	return func() ([]byte, error) {
		n, err := r.Read(buf)
		if n > 0 {
			return bytes.Clone(buf[:n]), nil
		}
		return nil, err
	}
}

func encodeExpiredJSON() ([]byte, error) {
	status, err := json.Marshal(expired())
	if err != nil {
		return nil, err
	}
	event, err := json.Marshal(metav1.WatchEvent{
		Type: string(apiwatch.Error), Object: runtime.RawExtension{Raw: status},
	})
	return append(event, '\n'), err
}

func encodeExpiredProtobuf() ([]byte, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	var object bytes.Buffer
	status := expired()
	if err := protobuf.NewSerializer(scheme, scheme).Encode(&status, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{
		Type: string(apiwatch.Error), Object: runtime.RawExtension{Raw: object.Bytes()},
	}
	data, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// mustEncode makes a constant.
func mustEncode(encode func() ([]byte, error)) []byte {
	data, err := encode()
	if err != nil {
		panic(fmt.Sprintf("encode an ERROR event: %v", err))
	}
	return data
}
