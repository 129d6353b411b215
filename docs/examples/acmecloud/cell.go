// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"net/url"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates addresses of Acme's cloud to nodes.
var Cell = cloudipam.Module("ipam.acme", "Allocates addresses of Acme's cloud to nodes", "alibabacloud", "acme", newProvider,
	cell.Config(Config{}),
	cell.Decorate(func(shared cloudipam.Config, c Config) cloudipam.Config {
		shared.ReleaseExcessIPs = c.AcmeReleaseExcessIPs
		return shared
	}),
)

// Config is Acme's cloud.
type Config struct {
	AcmeAPI              string `flag:"acme-api" usage:"URL of Acme's API"`
	AcmeReleaseExcessIPs bool   `flag:"acme-release-excess-ips" usage:"Release addresses that nodes do not need"`
}

// Validate is called if the module is on.
func (c Config) Validate() error {
	if u, err := url.Parse(c.AcmeAPI); err != nil || u.Host == "" {
		return cell.Invalid("acme-api", "must be a URL, such as https://api.acme.example")
	}
	return nil
}
