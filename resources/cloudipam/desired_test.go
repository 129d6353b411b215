// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import "testing"

// CIPAM-44; number 4.5 of the contract's tenants.md: what is no address of a pod.
func TestFitAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.0.2.7": true, "100.64.0.1": true, "fd00::1": true, "2001:db8::1": true,
		"not-an-ip": false, "999.1.1.1": false, "0.0.0.0": false, "::": false, "::1": false, "127.0.0.1": false, "169.254.169.10": false, "fe80::1": false,
		"fe80::1%eth0": false, "224.0.0.1": false, "255.255.255.255": false, "": false, "10.0.0.0/28": false,
	} {
		if got := isFit(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
