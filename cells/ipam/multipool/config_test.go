// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/operatortest"
)

// MPOOL-3: the fields of a pool.
func TestSpecOfAPool(t *testing.T) {
	v4 := func(mask int, cidrs ...string) *v2alpha1.IPv4PoolSpec {
		return &v2alpha1.IPv4PoolSpec{CIDRs: cidrs, MaskSize: mask}
	}
	v6 := func(mask int, cidrs ...string) *v2alpha1.IPv6PoolSpec {
		return &v2alpha1.IPv6PoolSpec{CIDRs: cidrs, MaskSize: mask}
	}
	for text, want := range map[string]v2alpha1.CiliumPodIPPoolSpec{
		"ipv4-cidrs:172.16.0.0/16,172.17.0.0/16;ipv4-mask-size:24;ipv6-cidrs:fd00:1::/80;ipv6-mask-size:96": {IPv4: v4(24, "172.16.0.0/16", "172.17.0.0/16"), IPv6: v6(96, "fd00:1::/80")},
		" ipv4-cidrs : 10.0.0.0/8 ; ipv4-mask-size : 24 ":                                                   {IPv4: v4(24, "10.0.0.0/8")},
		"ipv6-mask-size:96;ipv6-cidrs:fd00:1::5/80,fd00:2::/80":                                             {IPv6: v6(96, "fd00:1::/80", "fd00:2::/80")},
		"ipv4-cidrs:10.0.0.0/8":                             {IPv4: v4(0, "10.0.0.0/8")},
		"ipv4-mask-size:255":                                {IPv4: v4(255)},
		"color:red;ipv4-cidrs:10.0.0.0/8;ipv4-mask-size:24": {IPv4: v4(24, "10.0.0.0/8")},
	} {
		got, err := parseSpec(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

// MPOOL-3: a replica with a value that cannot be parsed does not start, and names the flag and the pools.
func TestBadFlagIsRefusedAtStart(t *testing.T) {
	for value, want := range map[string][]string{
		"default=ipv4-cidrs":                              {`pool "default": field "ipv4-cidrs" must be key:value`},
		"default=ipv4-cidrs:10.0.0.0/8;":                  {`pool "default": field "" must be key:value`},
		"default=":                                        {`pool "default": field "" must be key:value`},
		"default=ipv4-cidrs:10.0.0.0/33":                  {`pool "default": ipv4-cidrs: invalid CIDR address: 10.0.0.0/33`},
		"default=ipv4-cidrs:":                             {`pool "default": ipv4-cidrs: invalid CIDR address: `},
		"default=ipv4-mask-size:many":                     {`pool "default": ipv4-mask-size: "many" must be a number from 0 to 255`},
		"default=ipv6-mask-size:256":                      {`pool "default": ipv6-mask-size: "256"`},
		"default=ipv6-mask-size:-1":                       {`pool "default": ipv6-mask-size: "-1"`},
		`{"a":"x","b":"ipv4-cidrs:y"}`:                    {`pool "a": field "x"`, `pool "b": ipv4-cidrs: invalid CIDR address: y`},
		"a=ipv4-cidrs:10.0.0.0/8,x,b=ipv4-mask-size:1000": {`pool "a": ipv4-cidrs: invalid CIDR address: x`, `pool "b": ipv4-mask-size: "1000"`},
		`{"a":["ipv4-cidrs:10.0.0.0/8"]}`:                 {"JSON object of strings"},
	} {
		_, err := operatortest.New(t, Cell, "/nonexistent", ours, "--"+createFlag+"="+value)
		if err == nil {
			t.Errorf("%s: no error", value)
			continue
		}
		for _, text := range append(want, createFlag) {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q is not in: %v", value, text, err)
			}
		}
	}
}

// MPOOL-3: the map of pools.
func TestPoolsOfTheFlag(t *testing.T) {
	want := map[string]v2alpha1.CiliumPodIPPoolSpec{
		"default": {IPv4: &v2alpha1.IPv4PoolSpec{CIDRs: []string{"10.0.0.0/16", "10.1.0.0/16"}, MaskSize: 24}},
		"other":   {IPv6: &v2alpha1.IPv6PoolSpec{CIDRs: []string{"fd00::/80"}, MaskSize: 96}},
	}
	for _, value := range []string{
		"default=ipv4-cidrs:10.0.0.0/16,10.1.0.0/16;ipv4-mask-size:24,other=ipv6-cidrs:fd00::/80;ipv6-mask-size:96",
		`{"default":"ipv4-cidrs:10.0.0.0/16,10.1.0.0/16;ipv4-mask-size:24","other":"ipv6-cidrs:fd00::/80;ipv6-mask-size:96"}`,
	} {
		var got map[string]v2alpha1.CiliumPodIPPoolSpec
		seen := spy(t, func(c Config) (err error) {
			got, err = c.pools()
			return err
		})
		if _, err := operatortest.New(t, seen, "", unreachable, "--"+createFlag+"="+value); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", value, diff)
		}
	}
}
