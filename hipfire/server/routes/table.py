"""The table of routes."""

from hipfire.server.routes import chat, health, images, models, stats
from hipfire.server.routes.route import Route

ROUTES: tuple[Route, ...] = (*health.ROUTES, *models.ROUTES, *stats.ROUTES, *chat.ROUTES, *images.ROUTES)
