// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package logging makes the process' logger: slog in front, logrus behind.
//
// Code logs through *slog.Logger only; logrus gives the lines the forms that
// users of the original parse. Every line carries the module it comes from as
// subsys. The log-driver and log-opt flags follow docs/wire/configuration.md.
package logging
