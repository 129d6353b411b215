// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import "math/rand/v2"

// alphabet has no vowels and no look-alikes, so that names make no words.
const alphabet = "bcdfghjklmnpqrstvwxyz2456789"

// randomName is a name that no slice is likely to have.
func randomName() string {
	name := []byte("ces-000000000-00000")
	for i, c := range name {
		if c == '0' {
			name[i] = alphabet[rand.IntN(len(alphabet))]
		}
	}
	return string(name)
}
