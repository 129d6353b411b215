// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName is the length of names of Services.
const maxName = 63

var hashDigits = strings.NewReplacer("0", "g", "1", "h", "3", "k", "a", "m", "e", "t")

// Shorten returns a name of at most 63 characters that stands for s.
func Shorten(s string) string {
	if len(s) <= maxName {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:52] + "-" + hashDigits.Replace(hex.EncodeToString(sum[:])[:10])
}

// SecretCopy is the name of the copy of a Secret that agents read. Agents up to 1.20 compute it for network policies.
func SecretCopy(s Name) string { return s.Namespace + "-" + s.Name }

// ConfigMapCopy is the name of the Secret with the certificates of authorities that a ConfigMap has.
func ConfigMapCopy(s Name) string { return s.Namespace + "-cfgmap-" + s.Name }
