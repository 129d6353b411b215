// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

func rawResource(text json.RawMessage) runtime.RawExtension { return runtime.RawExtension{Raw: text} }

// Digest is equal for specs that mean the same: the order of keys and white space do not count. It is comparable with ==.
type Digest [sha256.Size]byte

// MaxSize is the size of a spec that is written at most. API servers and etcd refuse objects of 1.5 MiB.
const MaxSize = 1400 << 10

// Encoded is a spec as it is written.
type Encoded struct {
	JSON   json.RawMessage
	Digest Digest
}

// TooLargeError says that a spec is larger than MaxSize.
type TooLargeError struct{ Size int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the configuration for Envoy has %d bytes, more than the %d that an object may have: use fewer routes, or divide them", e.Size, MaxSize)
}

// Encode returns a spec as it is written, or a TooLargeError.
func Encode(spec v2.CiliumEnvoyConfigSpec) (Encoded, error) {
	text, err := marshal(spec)
	if err != nil {
		return Encoded{}, fmt.Errorf("encoding the configuration for Envoy: %w", err)
	}
	if len(text) > MaxSize {
		return Encoded{}, &TooLargeError{len(text)}
	}
	digest, err := DigestOf(text)
	return Encoded{text, digest}, err
}

// DigestOf is the digest of a spec as the API server has it.
func DigestOf(text []byte) (Digest, error) {
	sorted, err := canonical(text)
	if err != nil {
		return Digest{}, err
	}
	return sha256.Sum256(sorted), nil
}
