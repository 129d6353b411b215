// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import "math/rand/v2"

// alphabet has no vowels and no look-alike characters, so that names are no words.
const alphabet = "bcdfghjklmnpqrstvwxyz2456789"

// randomName is a random name of a slice.
func randomName() string {
	name := []byte("ces-000000000-00000")
	for i, c := range name {
		if c == '0' {
			name[i] = alphabet[rand.IntN(len(alphabet))]
		}
	}
	return string(name)
}
